"""Pictures that only other encoders write: `python3 tests/pictures/make.py` (Pillow) writes them again. All show the same: the
left half red, the right half blue, 24 x 16 pixels."""
import pathlib

from PIL import Image

HERE = pathlib.Path(__file__).parent
picture = Image.new("RGB", (24, 16), (255, 0, 0))
picture.paste((0, 0, 255), (12, 0, 24, 16))
other = Image.new("RGB", (24, 16), (0, 255, 0))
clear = picture.convert("RGBA")
clear.putalpha(Image.linear_gradient("L").resize((24, 16)))

picture.save(HERE / "progressive.jpg", quality=95, progressive=True)
picture.save(HERE / "optimised.jpg", quality=95, subsampling=0, optimize=True)
picture.convert("CMYK").save(HERE / "cmyk.jpg", quality=95)
picture.convert("L").save(HERE / "grey.jpg", quality=95)
picture.save(HERE / "lossy.webp", quality=90)
picture.save(HERE / "lossless.webp", lossless=True)
clear.save(HERE / "alpha.webp", quality=90)
picture.save(HERE / "animated.webp", save_all=True, append_images=[other], duration=100, lossless=True)
picture.save(HERE / "animated.gif", save_all=True, append_images=[other], duration=100)
picture.save(HERE / "still.gif")
picture.convert("P", palette=Image.Palette.ADAPTIVE, colors=4).save(HERE / "palette.png")
picture.convert("1").save(HERE / "bits.png")
picture.save(HERE / "rgb.bmp")
picture.convert("P", palette=Image.Palette.ADAPTIVE, colors=4).save(HERE / "palette.bmp")
